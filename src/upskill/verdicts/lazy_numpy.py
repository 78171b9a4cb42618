"""`np`: numpy, loaded when it is first used, so that no command waits for it before its first call."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            found = getattr(import_module("numpy"), name)
            setattr(self, name, found)
            return found

    np = _Numpy()
    ArrayLike = Floats = NDArray = Any

__all__ = ["ArrayLike", "Floats", "NDArray", "np"]
