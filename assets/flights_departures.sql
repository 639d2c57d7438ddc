CREATE DATASET flights.departures (
  dep_time INT COMMENT 'actual departure, local, HHMM; missing where the flight was cancelled',
  sched_dep_time INT COMMENT 'scheduled departure, local, HHMM',
  dep_delay INT COMMENT 'minutes; negative is early',
  arr_time INT COMMENT 'actual arrival, local, HHMM',
  sched_arr_time INT COMMENT 'scheduled arrival, local, HHMM',
  arr_delay INT COMMENT 'minutes; negative is early',
  carrier STRING COMMENT 'two-letter carrier code',
  flight INT COMMENT 'flight number',
  tailnum STRING COMMENT 'plane',
  origin STRING COMMENT 'airport of departure',
  dest STRING COMMENT 'airport of arrival',
  air_time INT COMMENT 'minutes in the air',
  distance INT COMMENT 'miles',
  time_hour TIMESTAMP COMMENT 'scheduled hour of departure'
)
  COMMENT "One row per scheduled departure, as the airports' partner reports it, by day in New York."
  STORED IN LAKE
  PARTITIONED BY (day DATE)
  FOR t IN TIMESERIES(INTERVAL 1 DAY, START '2013-01-01', END '2014-01-01', TIMEZONE 'America/New_York')
  LET day = CAST(t AS DATE)
EXTERNAL OPTIONS (source = 'landing');
