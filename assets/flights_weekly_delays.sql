CREATE DATASET flights.weekly_delays (
  carrier STRING COMMENT 'two-letter carrier code',
  days BIGINT COMMENT 'days of the week on which it flew',
  flights BIGINT COMMENT 'scheduled departures',
  cancelled BIGINT COMMENT 'departures that did not take place',
  delay_minutes BIGINT COMMENT 'sum of departure delays'
)
  COMMENT 'One row per carrier: its delays in an ISO week, named by its Monday, from one airport.'
  STORED IN WAREHOUSE
  PARTITIONED BY (week DATE, origin STRING)
  FOR
    t IN TIMESERIES(INTERVAL 1 WEEK, START '2012-12-31', END '2014-01-06', TIMEZONE 'America/New_York'),
    airport IN ('EWR', 'JFK', 'LGA')
  LET monday = CAST(t AS DATE)
  INSERT (week = monday, origin = airport)
AS
SELECT
  carrier,
  COUNT(DISTINCT day) AS days,
  SUM(flights) AS flights,
  SUM(cancelled) AS cancelled,
  SUM(delay_minutes) AS delay_minutes
FROM flights.delays
WHERE day BETWEEN monday AND DATE_ADD(monday, 6) AND origin = airport
GROUP BY carrier;
