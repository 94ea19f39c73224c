"""`schedopt warm-up`: compile all kernels at once, so that no command waits for its own."""

from ..console import Output, tell, write_json
from ..options import JsonFlag, QuietFlag


def warm_up(json: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """Compile all kernels, so that no later command waits for its own; once per installation, up to minutes."""
    from ...core.kernels.compiling import compiling_tells
    from ...core.search.warm_up import all_runs, warm_up_training
    from ...core.search.warm_up import warm_up as warm_up_method
    from ...core.solve.placed import warm_up_places
    from ..progress import progress_bar

    kernels: list[str] = []
    runs = all_runs()
    with progress_bar(Output(quiet), "", len(runs)) as bar, compiling_tells(kernels.append):
        for spec, problem in runs:
            warm_up_method(problem, spec)
            bar(what=spec.name)
        warm_up_places()
        warm_up_training()
    if json:
        write_json({"compiled": len(kernels)})
        return
    tell(f"compiled {len(kernels):,} kernels" if kernels else "all kernels are compiled already")
