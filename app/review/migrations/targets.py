"""The targets of a migration, with what each does."""

TARGETS = {
    "ddp": "one process or DataParallel to DistributedDataParallel",
    "fsdp2": "DistributedDataParallel, or one process, to fully_shard",
    "resume": "save the whole state of a run every few steps, and continue there when it is started again",
}
