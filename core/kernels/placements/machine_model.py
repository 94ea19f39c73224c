"""The names of `cost_model` that price steps at their times."""

from ..cost_model import MachineArrays as MachineArrays
from ..cost_model import Scratch as Scratch
from ..cost_model import TimedSteps as Steps
from ..cost_model import account as account
from ..cost_model import begin as begin
from ..cost_model import machine_arrays as machine_arrays
from ..cost_model import new_scratch as new_scratch
from ..cost_model import new_timed_steps as new_steps
from ..cost_model import note_rows as note_rows
from ..cost_model import replicated as replicated
from ..cost_model import time_op as time_op
from ..cost_model import time_transfer as time_transfer

__all__ = [
    "MachineArrays",
    "Scratch",
    "Steps",
    "account",
    "begin",
    "machine_arrays",
    "new_scratch",
    "new_steps",
    "note_rows",
    "replicated",
    "time_op",
    "time_transfer",
]
