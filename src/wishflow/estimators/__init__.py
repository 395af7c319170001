"""What knows all estimators: `load` reads them from model files, `fit_many` fits many of them."""

from .loading import load as load
from .many import fit_many as fit_many
