"""Plain-Python twins of the kernels and of the cost model, and random graphs to try them on: a room per idea.

Nothing here calls the code under test: a `Plain` graph is made from a specification (what `GraphBuilder.add_op`
takes) or from the raw arrays of a `CostGraph`, and everything else follows from the cost model's rules
(`docs/concepts/cost-model.md`) by sets and recursion. `import naive` works because pytest's `pythonpath` names the
folder above; tests say `naive.replay`, whatever the room.
"""

# ruff: noqa: F403

from .costs import *
from .exhaustive import *
from .graphs import *
from .lifetimes import *
from .list_schedules import *
from .one_device import *
from .placements import *
from .priorities import *
from .random_keys import *
from .repeated_runs import *
from .sequences import *
from .topoformer import *
