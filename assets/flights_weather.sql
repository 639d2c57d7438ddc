CREATE DATASET flights.weather (
  origin STRING COMMENT 'airport',
  temp DOUBLE COMMENT 'degrees Fahrenheit',
  dewp DOUBLE COMMENT 'dew point, degrees Fahrenheit',
  humid DOUBLE COMMENT 'relative humidity, percent',
  wind_dir INT COMMENT 'degrees',
  wind_speed DOUBLE COMMENT 'miles per hour',
  wind_gust DOUBLE COMMENT 'miles per hour',
  precip DOUBLE COMMENT 'inches',
  pressure DOUBLE COMMENT 'millibars',
  visib DOUBLE COMMENT 'miles',
  time_hour TIMESTAMP COMMENT 'the hour'
)
  COMMENT 'One row per airport: the weather observed in one UTC hour.'
  STORED IN LAKE
  PARTITIONED BY (hour STRING)
  FOR t IN TIMESERIES(INTERVAL 1 HOUR, START '2013-01-01T05:00', END '2014-01-01T05:00')
  LET hour = DATE_FORMAT(t, "yyyy-MM-dd'T'HH")
EXTERNAL OPTIONS (source = 'landing');
