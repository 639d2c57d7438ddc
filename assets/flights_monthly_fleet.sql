CREATE DATASET flights.monthly_fleet (
  manufacturer STRING COMMENT 'who built the planes',
  planes BIGINT COMMENT 'planes in the register of the year',
  seats BIGINT COMMENT 'their seats',
  mean_age DOUBLE COMMENT 'years since their year of manufacture began; of planes whose year is known'
)
  COMMENT 'One row per manufacturer: its planes at the beginning of a month.'
  STORED IN WAREHOUSE
  PARTITIONED BY (month STRING)
  FOR t IN TIMESERIES(INTERVAL 1 MONTH, START '2013-01-01', END '2014-01-01', TIMEZONE 'America/New_York')
  LET first_day = CAST(t AS DATE), this_month = DATE_FORMAT(t, 'yyyy-MM')
  INSERT (month = this_month)
AS
SELECT
  manufacturer,
  COUNT(*) AS planes,
  SUM(seats) AS seats,
  CAST(AVG((YEAR(first_day) - year) * 12 + MONTH(first_day) - 1) / 12 AS DOUBLE) AS mean_age
FROM flights.fleet
WHERE fleet.of_year = SUBSTR(this_month, 1, 4)
GROUP BY manufacturer;
