"""Every public name, once: type checkers read this file, and so does ``__init__.py``."""

from bayesmf.data.io.load import load as load
from bayesmf.data.io.shards import Shards as Shards
from bayesmf.data.io.shards import shard as shard
from bayesmf.data.io.split_files import load_split as load_split
from bayesmf.data.io.split_files import save_split as save_split
from bayesmf.data.io.write import write as write
from bayesmf.data.ratings import Ratings as Ratings
from bayesmf.data.scale import Scale as Scale
from bayesmf.data.split import Split as Split
from bayesmf.data.split import kfold as kfold
from bayesmf.data.split import split as split
from bayesmf.engines.ray.cluster import Ray as Ray
from bayesmf.errors import AttributesWarning as AttributesWarning
from bayesmf.errors import DataError as DataError
from bayesmf.errors import OverfittingWarning as OverfittingWarning
from bayesmf.errors import SeenWarning as SeenWarning
from bayesmf.errors import UnusedWarning as UnusedWarning
from bayesmf.evaluation.diagnostics import Targets as Targets
from bayesmf.fitted.base import load_model as load_model
from bayesmf.inference.gibbs import Gibbs as Gibbs
from bayesmf.inference.map.fit import MAP as MAP
from bayesmf.inference.one_call import fit as fit
from bayesmf.inference.propagation.fit import Propagation as Propagation
from bayesmf.inference.variational.fit import Variational as Variational
from bayesmf.model.attributes import Attributes as Attributes
from bayesmf.model.designs import RatedSet as RatedSet
from bayesmf.model.spec import Hyper as Hyper
from bayesmf.model.spec import Model as Model
from bayesmf.plots.progress import ProgressBar as ProgressBar
from bayesmf.report.summary import summary_page as summary_page
from bayesmf.selection.compare import compare as compare
from bayesmf.selection.cross_validate import cross_validate as cross_validate
from bayesmf.selection.tune import tune as tune

__version__: str
__all__: list[str]
