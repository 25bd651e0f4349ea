"""What `gradcheck.gradcheck` says of a function."""

from __future__ import annotations

from dataclasses import dataclass

WEAK = 1e-3
"""A scale error of 0.1 %: a check that would not see it is weak."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of one input, compared.

    Args:
        name: the input's key, or its position.
        problem: what is wrong with it, or nothing.
        checked: elements compared.
        worst: index of the element that is furthest off for its tolerance; got, want, tolerance: there.
        source: where the tolerance comes from.
        visible: least relative error of the whole gradient that would have shown; None where the gradient is zero.
        vague: elements that could be off by more than WEAK, of themselves or of the gradient's rms, unseen.
    """

    name: str
    problem: str = ""
    checked: int = 0
    worst: tuple[int, ...] = ()
    got: float = 0.0
    want: float = 0.0
    tolerance: float = 0.0
    source: str = ""
    visible: float | None = None
    vague: int = 0

    @property
    def weak(self) -> str:
        """What could not have been seen, or nothing."""
        if self.visible is not None and not (self.visible <= WEAK):
            return f"weak: only errors above {self.visible:.1g} relative would show in d {self.name}"
        if self.vague:
            return f"weak: {self.vague} of {self.checked} elements of d {self.name} could be off by more than {WEAK:g} relative unseen"
        return ""

    def __str__(self) -> str:
        head = f"{'✗' if self.problem else '✓'} d {self.name}"
        if not self.checked:
            return f"{head}: {self.problem or 'nothing compared'}"
        at = f"[{', '.join(map(str, self.worst))}]"
        told = f"{head}: {self.checked} elements" + (f"; {self.problem}" if self.problem else "")
        compared = f"worst at {at}: got {self.got:.9g}, want {self.want:.9g} ± {self.tolerance:.1g}"
        seen = "the gradient is zero" if self.visible is None else f"an error of {self.visible:.1g} relative would show"
        return f"{told}\n    {compared}\n    tolerance: {self.source}; {seen}"


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on a function's gradients: true where all of them are right. `str` of it explains.

    Args:
        gradients: one per floating input, never summed.
        precision: dtype in which the function was evaluated for the differences.
        problem: what is wrong beside any single gradient, or nothing.
    """

    gradients: tuple[Gradient, ...]
    precision: str
    problem: str = ""

    @property
    def checked(self) -> int:
        """Elements compared, of all gradients."""
        return sum(gradient.checked for gradient in self.gradients)

    @property
    def weak(self) -> str:
        """What this check could not have seen, though it passed: an error of 0.1 % in a gradient, or in some of its elements. Or nothing."""
        return "; ".join(gradient.weak for gradient in self.gradients if gradient.weak)

    def __bool__(self) -> bool:
        return not self.problem and self.checked > 0 and not any(gradient.problem for gradient in self.gradients)

    def __str__(self) -> str:
        verdict = "the gradients are right" if self else "the gradients are not right"
        how = f"{self.checked} elements compared with differences in {self.precision}"
        lines = [f"{verdict}: {how}", *([self.problem] if self.problem else []), *map(str, self.gradients)]
        return "\n".join([*lines, *([self.weak] if self.weak else [])])
