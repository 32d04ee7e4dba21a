from posttrain.operations.python.causes import why as why
from posttrain.operations.python.figures import compare as compare
from posttrain.operations.python.figures import metrics as metrics
from posttrain.operations.python.graphs import lineage as lineage
from posttrain.operations.python.plans import plan as plan
from posttrain.operations.python.runs import run as run
from posttrain.operations.python.tables import load as load
from posttrain.pipeline.execution.failures import StageFailed as StageFailed
from posttrain.stage.errors import UserError as UserError

__version__: str
