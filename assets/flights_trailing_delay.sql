CREATE DATASET flights.trailing_delay (
  carrier STRING COMMENT 'two-letter carrier code',
  days BIGINT COMMENT 'days of the last seven on which it flew',
  flights BIGINT COMMENT 'scheduled departures',
  mean_delay DOUBLE COMMENT 'minutes a flight that took off, early departures counted as negative'
)
  COMMENT 'One row per carrier: its delays over a day and the six before it, from one airport.'
  STORED IN LAKE
  PARTITIONED BY (day DATE, origin STRING)
  FOR
    t IN TIMESERIES(INTERVAL 1 DAY, START '2013-01-01', END '2014-01-01', TIMEZONE 'America/New_York'),
    airport IN ('EWR', 'JFK', 'LGA')
  LET partition_day = CAST(t AS DATE)
  INSERT (day = partition_day, origin = airport)
AS
SELECT
  carrier,
  COUNT(DISTINCT delays.day) AS days,
  SUM(flights) AS flights,
  SUM(delay_minutes) / NULLIF(SUM(flights - cancelled), 0) AS mean_delay
FROM flights.delays
WHERE delays.day BETWEEN DATE_SUB(partition_day, 6) AND partition_day AND delays.origin = airport
GROUP BY carrier;
