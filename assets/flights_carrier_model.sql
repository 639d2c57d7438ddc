CREATE DATASET flights.carrier_model (
  days BIGINT COMMENT 'days and airports that it was fitted to',
  base_minutes DOUBLE COMMENT 'mean delay of a flight in still air',
  minutes_per_mph DOUBLE COMMENT 'further minutes for each mile per hour of wind'
)
  COMMENT 'One row: how the wind delays a carrier, fitted to the first week of the year.'
  STORED IN LAKE
  PARTITIONED BY (carrier STRING)
  FOR airline IN DYNAMIC 'carriers' FROM (SELECT DISTINCT carrier FROM flights.departures)
  INSERT (carrier = airline)
PYTHON 'assets.carrier_model:fit'
USING history AS (
  SELECT delays.flights, delays.delay_minutes, delays.wind_speed
  FROM flights.delays
  WHERE delays.day BETWEEN DATE '2013-01-01' AND DATE '2013-01-07' AND delays.carrier = airline
);
