"""Template of an adapter with PyTorch's signature, for a kernel that requires a parameter unknown to all interfaces."""

from __future__ import annotations

from pathlib import Path

from attention_conformance.interfaces.interface import Mark, Parameters
from attention_conformance.interfaces.parameter_names import ROLES, roles_of

TEMPLATE = '''from {module} import {root}


def attention(query, key, value{options}):
    """(B, H, L, E), (B, G, T, E), (B, G, T, M) → (B, H, L, M); add the kernel's options."""
    return {path}({arguments})
'''
SAME: dict[str, str] = (
    dict.fromkeys(ROLES["mask"], "attn_mask")
    | dict.fromkeys(ROLES["causal"], "is_causal")
    | dict.fromkeys(ROLES["scale"], "scale")
    | dict.fromkeys(ROLES["heads"], "query.shape[1]")
    | dict.fromkeys(ROLES["groups"], "key.shape[1]")
    | {"enable_gqa": "enable_gqa"}
)
"""For common parameter names of kernels, the expression, in the adapter's own parameters, that the adapter passes."""
DEFAULTS = {"attn_mask": None, "is_causal": False, "scale": None, "enable_gqa": False}
TENSORS = ("query", "key", "value")


def adapter_to_paste(source: str, parameters: Parameters) -> str:
    """Return the source of an adapter for the kernel ``source``; the user has to replace each ``...`` in it."""
    module, _, path = source.rpartition(":")
    module = module.rpartition(":")[2]
    module = Path(module).stem if module.endswith(".py") else module
    names = [name for name in parameters if name != "**"]
    roles = roles_of(names)
    tensors = [roles[role][0] for role in TENSORS if roles[role]]
    tensors = tensors if len(tensors) == len(TENSORS) else names[: len(TENSORS)]
    arguments = [f"{name}={tensor}" for name, tensor in zip(tensors, TENSORS, strict=False)]
    names = [name for name in names if name not in tensors]
    for name in names:
        if name in SAME:
            arguments.append(f"{name}={SAME[name]}")
        elif parameters[name] is Mark.REQUIRED:
            arguments.append(f"{name}=...")
    has = {SAME.get(name) for name in names}
    options = "".join(f", {name}={default}" for name, default in DEFAULTS.items() if name in has)
    return TEMPLATE.format(
        module=module or "my_package",
        root=path.split(".")[0],
        path=path,
        options=options,
        arguments=", ".join(arguments),
    )
