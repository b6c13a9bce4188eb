-- The catalog of a store: STORE/.ckpt/catalog.sqlite. An index of what manifests and marks say, made again from them at
-- any time. Times are milliseconds since 1970, UTC. Names of runs and directories are their bytes, whether or not they
-- are UTF-8.

CREATE TABLE runs (              -- every directory that was looked into
  run TEXT PRIMARY KEY,          -- its path in the store; "." is the store
  inode INTEGER NOT NULL,        -- what it was when it was listed
  mtime_ns INTEGER NOT NULL,
  settled INTEGER NOT NULL,      -- 0: list it again, a change may have kept its time; or it must always be looked at
  has_foreign INTEGER NOT NULL
) STRICT;

CREATE TABLE checkpoints (
  checkpoint INTEGER PRIMARY KEY,
  run TEXT NOT NULL,
  name TEXT NOT NULL,            -- of its directory
  id TEXT NOT NULL,
  series INTEGER NOT NULL,
  series_from INTEGER,
  generation INTEGER NOT NULL,
  step INTEGER NOT NULL,
  created INTEGER NOT NULL,
  state INTEGER NOT NULL,        -- 1 unreadable, 2 corrupt, 3 committed, 4 verified
  reason TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  optimizer_bytes INTEGER NOT NULL,
  weights_bytes INTEGER NOT NULL,
  optim_bytes INTEGER NOT NULL,
  blobs_bytes INTEGER NOT NULL,
  objects_bytes INTEGER NOT NULL,
  index_bytes INTEGER NOT NULL,
  files INTEGER NOT NULL,
  format TEXT NOT NULL,
  is_foreign INTEGER NOT NULL,
  layout TEXT NOT NULL,
  framework TEXT NOT NULL,
  parent TEXT NOT NULL,
  revision INTEGER NOT NULL,
  plan_s REAL,                   -- of the save, by its slowest rank
  stage_s REAL,
  write_s REAL,
  ranks INTEGER,
  marks_unreadable INTEGER NOT NULL,
  is_link INTEGER NOT NULL,
  inode INTEGER NOT NULL,        -- what its directory and its marks were when they were read
  mtime_ns INTEGER NOT NULL,
  marks_inode INTEGER NOT NULL,
  marks_mtime_ns INTEGER NOT NULL,
  UNIQUE (run, name)
) STRICT;
CREATE INDEX checkpoints_order ON checkpoints (run, series, step, generation, name, state, created, bytes);
CREATE INDEX checkpoints_newest ON checkpoints (run, generation, step, name);
CREATE INDEX checkpoints_births ON checkpoints (run, series, series_from) WHERE series_from IS NOT NULL;
CREATE INDEX checkpoints_id ON checkpoints (id);

CREATE TABLE states (            -- what happened to a checkpoint since it was durable
  checkpoint INTEGER NOT NULL REFERENCES checkpoints ON DELETE CASCADE,
  state TEXT NOT NULL,           -- verified, restored
  name TEXT NOT NULL,
  at INTEGER,
  owner TEXT NOT NULL,
  text TEXT NOT NULL,
  value REAL
) STRICT;
CREATE INDEX states_checkpoint ON states (checkpoint);

CREATE TABLE pins (
  checkpoint INTEGER NOT NULL REFERENCES checkpoints ON DELETE CASCADE,
  name TEXT NOT NULL,
  owner TEXT NOT NULL,
  reason TEXT NOT NULL,
  at INTEGER,
  until INTEGER
) STRICT;
CREATE INDEX pins_checkpoint ON pins (checkpoint);

CREATE TABLE marks (             -- everything else that was said of it
  checkpoint INTEGER NOT NULL REFERENCES checkpoints ON DELETE CASCADE,
  kind TEXT NOT NULL,            -- tag, note, metric, reference; tracker: a file of another tool names it; saved: a metric of the manifest
  name TEXT NOT NULL,
  text TEXT NOT NULL,
  owner TEXT NOT NULL,
  at INTEGER,
  value REAL                     -- NULL is no number
) STRICT;
CREATE INDEX marks_checkpoint ON marks (checkpoint);
CREATE INDEX marks_name ON marks (kind, name, checkpoint);
