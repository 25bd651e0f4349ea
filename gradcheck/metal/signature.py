"""The `[[kernel]]` function that MLX makes of a kernel's body, its parameters in the order of their buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}
"""Those that a body may name, with their types. MLX looks for the name anywhere in the text, comments included."""

TYPES = {
    "bool": "bool",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "float16": "float16_t",
    "bfloat16": "bfloat16_t",
    "float32": "float",
    "complex64": "complex64_t",
}
"""Metal's name of each MLX dtype, by the dtype's name."""

_CONSTANT_BELOW = 8  # elements: smaller inputs are passed in constant memory

TemplateValue = bool | int | str
"""A template argument: a bool, an int, or the name of a dtype."""


@dataclass(frozen=True, slots=True)
class Text:
    """What a kernel is made of: the arguments of `metal_kernel` that the generated source depends on."""

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    header: str = ""
    atomic_outputs: bool = False

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the body names."""
        return tuple(name for name in ATTRIBUTES if name in self.source)

    def facts(self, name: str) -> tuple[str, ...]:
        """Which of `shape`, `strides` and `ndim` of an input the body asks for."""
        return tuple(fact for fact in ("shape", "strides", "ndim") if f"{name}_{fact}" in self.source)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the signature depends on of an input: its dtype's name, whether it is a scalar, and whether it is small."""

    dtype: str
    scalar: bool
    small: bool

    @classmethod
    def of(cls, dtype: str, ndim: int, size: int) -> Shape:
        """That of an array."""
        return cls(dtype, ndim == 0, size < _CONSTANT_BELOW)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One buffer: its declaration, its type in the call, and whose data it is.

    Args:
        name: as the body knows it.
        declared: everything before the name, such as `const device float*`.
        kind: `input`, `output`, or a fact of the input `of`.
        of: the input or output it belongs to.
    """

    name: str
    declared: str
    kind: Literal["input", "output", "shape", "strides", "ndim"]
    of: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A kernel for arguments of given types.

    Args:
        function: the function's name, without template arguments.
        template: `template <typename T, int D>`, or nothing.
        arguments: `<float, 64>`, or nothing.
        parameters: in the order of the buffers.
        attributes: those that the body names, after the buffers.
    """

    function: str
    template: str
    arguments: str
    parameters: tuple[Parameter, ...]
    attributes: tuple[str, ...]

    @property
    def head(self) -> str:
        """The text from `template` to the brace that opens the body."""
        buffers = [f"  {p.declared} {p.name} [[buffer({i})]]" for i, p in enumerate(self.parameters)]
        attributes = [f"  {ATTRIBUTES[name]} {name} [[{name}]]" for name in self.attributes]
        template = f"{self.template}\n" if self.template else ""
        return f"{template}[[kernel]] void {self.function}(\n" + ",\n".join([*buffers, *attributes]) + ") {\n"


def sign(text: Text, inputs: Sequence[Shape], outputs: Sequence[str], template: Sequence[tuple[str, TemplateValue]] = ()) -> Signature:
    """The signature of a kernel called with these inputs, for outputs of these dtypes."""
    parameters: list[Parameter] = []
    for name, shape in zip(text.input_names, inputs, strict=True):
        space, by = "constant" if shape.small else "device", "&" if shape.scalar else "*"
        parameters.append(Parameter(name, f"const {space} {TYPES[shape.dtype]}{by}", "input", name))
        declared = {"shape": "const constant int*", "strides": "const constant int64_t*", "ndim": "const constant int&"}
        facts = () if shape.scalar else text.facts(name)
        parameters += [Parameter(f"{name}_{fact}", declared[fact], fact, name) for fact in facts]  # type: ignore[arg-type] # the three facts
    for name, dtype in zip(text.output_names, outputs, strict=True):
        element = f"atomic<{TYPES[dtype]}>" if text.atomic_outputs else TYPES[dtype]
        parameters.append(Parameter(name, f"device {element}*", "output", name))
    values = [_value(value) for _, value in template]
    function = "_".join(
        [
            f"custom_kernel_{text.name}",
            *(str(value).replace("-", "n") for value in values),
            *(shape.dtype + ("s" if shape.scalar else "c" if shape.small else "") for shape in inputs),
            *outputs,
        ]
    )
    names = ", ".join(f"{_kind(value)} {name}" for name, value in template)
    return Signature(
        function,
        f"template <{names}>" if template else "",
        f"<{', '.join(values)}>" if template else "",
        tuple(parameters),
        text.attributes,
    )


def render(text: Text, signature: Signature) -> str:
    """The Metal source as MLX would compile it behind its own `utils.h`: what `verbose` prints and `tap` captures."""
    source = f"{text.header}{signature.head}{text.source}\n}}\n"
    if signature.template:
        whole = signature.function + signature.arguments
        source += f'\ntemplate [[host_name("{signature.function}")]] [[kernel]] decltype({whole}) {whole};\n'
    return source


def _kind(value: TemplateValue) -> str:
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "typename"


def _value(value: TemplateValue) -> str:
    return str(int(value)) if isinstance(value, int) else TYPES[value]
