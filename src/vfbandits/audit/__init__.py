"""What an active participant could learn from a participant's rows, attack by attack.

Attacks are pure, one file each, and return a ``Result``; ``look`` makes what they are run on, and
``plan`` lists those that ``vfb audit`` runs on a table.
"""

from vfbandits.audit.result import Curve, Level, Result, Severity
from vfbandits.audit.steps import Step, plan
from vfbandits.audit.table import AuditTable, prepare
from vfbandits.audit.view import View, look

__all__ = [
    "AuditTable",
    "Curve",
    "Level",
    "Result",
    "Severity",
    "Step",
    "View",
    "look",
    "plan",
    "prepare",
]
