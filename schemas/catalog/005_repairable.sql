-- A state of its own for what `ckpt repair` mends, before those of checkpoints that are corrupt (2) and whole (3, 4).
UPDATE checkpoints SET state=state+1 WHERE state>=2;
-- Which directories hold links, or files that name a checkpoint of ours, was not asked before.
UPDATE runs SET settled=0;
-- What is corrupt is read again: it may be one of those.
UPDATE checkpoints SET inode=0 WHERE state=3;
