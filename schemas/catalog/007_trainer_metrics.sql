-- Metrics that another tool keeps beside a checkpoint were not read before.
UPDATE checkpoints SET inode=0 WHERE is_foreign=1;
UPDATE runs SET settled=0;
