"""Plans of a training: memory, step time and job files of each strategy.

Wrong input raises ``UserError`` with the next step; a child process without an answer raises ``InspectionError``.
"""
