CREATE DATASET flights.delays (
  carrier STRING COMMENT 'two-letter carrier code',
  flights BIGINT COMMENT 'scheduled departures',
  cancelled BIGINT COMMENT 'departures that did not take place',
  delay_minutes BIGINT COMMENT 'sum of departure delays; early departures count as negative',
  wind_speed DOUBLE COMMENT 'mean wind at the scheduled hours, miles per hour',
  precip DOUBLE COMMENT 'mean precipitation at the scheduled hours, inches'
)
  COMMENT 'One row per carrier: its delays on a day from one airport, and the weather at its departures.'
  STORED IN LAKE
  PARTITIONED BY (day DATE, origin STRING)
  FOR
    t IN TIMESERIES(INTERVAL 1 DAY, START '2013-01-01', END '2014-01-01', TIMEZONE 'America/New_York'),
    airport IN ('EWR', 'JFK', 'LGA')
  LET today = CAST(t AS DATE)
  INSERT (day = today, origin = airport)
  EXPECT no_more_cancelled_than_scheduled: cancelled <= flights
AS
SELECT
  departures.carrier,
  COUNT(*) AS flights,
  COUNT_IF(departures.dep_time IS NULL) AS cancelled,
  CAST(COALESCE(SUM(departures.dep_delay), 0) AS BIGINT) AS delay_minutes,
  AVG(weather.wind_speed) AS wind_speed,
  AVG(weather.precip) AS precip
FROM flights.departures
-- The UTC hours of a day in New York: 24 of them, or 23 or 25 where the clocks move.
LEFT JOIN flights.weather
  ON weather.origin = departures.origin
  AND weather.time_hour = departures.time_hour
  AND weather.hour >= DATE_FORMAT(t, "yyyy-MM-dd'T'HH")
  AND weather.hour < DATE_FORMAT(t_end, "yyyy-MM-dd'T'HH")
WHERE departures.day = today AND departures.origin = airport
GROUP BY departures.carrier;
