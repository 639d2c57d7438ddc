CREATE DATASET written.prices (product STRING, price INT)
  COMMENT 'What was paid for each product, made up by tests/e2e/written/made_up.py'
  PARTITIONED BY (store STRING)
  FOR shop IN ('L''Aquila', "O'Brien")
  INSERT (store = shop)
PYTHON 'tests.e2e.written.made_up:prices';
