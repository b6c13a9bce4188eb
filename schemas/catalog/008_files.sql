-- Other tools' checkpoints of one file each were not listed before.
UPDATE runs SET settled=0;
