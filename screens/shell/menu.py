"""Tasks other than a diagnosis, as Home, the command palette and the plain wizard list them."""

TASKS = {
    "check": "Check this machine",
    "browse": "Search the knowledge base",
    "plan": "DDP, FSDP or ZeRO: plan a run",
}
