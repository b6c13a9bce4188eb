-- What waits in the trash, as the records beside it say: `ckpt status` sums it up. Whoever decides about what is there
-- reads the records themselves.
CREATE TABLE trash_runs (        -- every directory of the trash
  run TEXT PRIMARY KEY,          -- its path in the trash, that of the run; "." is the trash
  inode INTEGER NOT NULL,        -- what it was when it was listed
  mtime_ns INTEGER NOT NULL,
  settled INTEGER NOT NULL,      -- 0: list it again, a change may have kept its time
  checkpoints INTEGER NOT NULL,  -- sums of the rows below
  optimizers INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  first_over INTEGER,
  last_over INTEGER,
  unrecorded INTEGER NOT NULL    -- what has no record that can be read
) STRICT;

CREATE TABLE trash (
  run TEXT NOT NULL,
  kept_as TEXT NOT NULL,
  is_optimizer INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  purge_at INTEGER NOT NULL,
  purging INTEGER NOT NULL,      -- it is being removed, whatever its time
  inode INTEGER NOT NULL,        -- what its record was when it was read; 0: read it again
  mtime_ns INTEGER NOT NULL,
  PRIMARY KEY (run, kept_as)
) STRICT, WITHOUT ROWID;
CREATE INDEX trash_over ON trash (run, purging, purge_at);
