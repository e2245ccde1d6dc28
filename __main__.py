"""``python -m ddpwizard`` is the same as the ``ddpwizard`` command."""

from .cli import main

main()
