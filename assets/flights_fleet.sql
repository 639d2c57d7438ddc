CREATE DATASET flights.fleet (
  tailnum STRING COMMENT 'tail number',
  year INT COMMENT 'year of manufacture; missing where it is not known',
  type STRING COMMENT 'type of plane',
  manufacturer STRING COMMENT 'who built it',
  model STRING COMMENT 'model',
  engines INT COMMENT 'number of engines',
  seats INT COMMENT 'number of seats',
  speed INT COMMENT 'average cruising speed, miles per hour',
  engine STRING COMMENT 'type of engine'
)
  COMMENT 'One row per plane: the register of a year, a file of which the authority sends once.'
  STORED IN LAKE
  PARTITIONED BY (of_year STRING)
  FOR t IN TIMESERIES(INTERVAL 1 YEAR, START '2013-01-01', END '2014-01-01', TIMEZONE 'America/New_York')
  LET of_year = DATE_FORMAT(t, 'yyyy')
EXTERNAL OPTIONS (source = 'landing');
