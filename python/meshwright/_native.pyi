from collections.abc import Callable

__all__ = ["QuestionError", "command", "plan"]

_Document = tuple[str, list[str]]
_Progress = Callable[[int, int], object]

class QuestionError(ValueError): ...

def plan(question: str, progress: _Progress | None = None) -> _Document: ...
def command(arguments: list[str]) -> int: ...
