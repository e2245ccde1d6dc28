"""The targets of a migration, with what each does."""

TARGETS = {
    "ddp": "one process or DataParallel to DistributedDataParallel",
}
