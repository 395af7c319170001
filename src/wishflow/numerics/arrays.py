"""A name for annotations, in a module that does not import JAX."""

from typing import TYPE_CHECKING

import numpy as np

# NumPy's operations give a scalar where an array would have no axes: `Float[NumPyArray, "*shape"]`. The stubs of NumPy
# say nothing of it.
if TYPE_CHECKING:
    NumPyArray = np.ndarray
else:
    NumPyArray = np.ndarray | np.generic
