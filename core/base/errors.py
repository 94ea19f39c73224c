"""The errors schedopt raises on purpose; each message names the file or node, the value and the remedy."""

# Letters of a message: what it quotes may be as long as a file. The middle goes, since the remedy comes last.
_LONGEST = 1500


class SchedoptError(Exception):
    """Base of every deliberate error; the command line prints its message and leaves with `exit_code`."""

    exit_code = 2

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}...{text[-_LONGEST // 2 :]}"


class UsageError(SchedoptError):
    """An option, a method or a parameter that cannot be used like this."""


class GraphError(SchedoptError):
    """A computation graph that breaks a rule: cycle, unknown input, negative or overflowing cost."""


class FormatError(SchedoptError):
    """A file that cannot be read in its format."""


class UnwrittenError(FormatError):
    """A file that cannot be written; `data` is its content, for a copy elsewhere, and `path` its name."""

    def __init__(self, message: str, path: str, data: bytes) -> None:
        super().__init__(message)
        self.path, self.data = path, data


class OtherGraphError(FormatError):
    """A schedule of another graph."""


class UnknownNameError(OtherGraphError):
    """A schedule that names an op or a tensor which the graph does not have."""


class ScheduleError(SchedoptError):
    """A schedule that breaks a rule of the cost model."""

    exit_code = 1


class TrainingError(SchedoptError):
    """A training run that cannot go on: its loss is not a number any more."""


class ProgramError(SchedoptError):
    """A model that cannot be imported, traced, run or reordered."""


class ClusterError(SchedoptError):
    """A cluster that is lost in the middle of the work."""

    exit_code = 1


class WorkerRefusedError(ClusterError):
    """A worker of a cluster that has another version of schedopt, or none."""

    exit_code = 2


class WorkerDiedError(SchedoptError):
    """A task that was given up because the workers that had it died."""
