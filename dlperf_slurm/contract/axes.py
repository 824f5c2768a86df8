"""What the axes of a matrix are called, and their values that mean something to the code."""

TRAIN = "train"
VAL = "val"
MODES = (TRAIN, VAL)

# where the batch of a step comes from (DESIGN: data source)
ON_DEVICE = "device"
ON_HOST = "host"
PYTHON_QUEUE = "python-queue"
PIPELINE = "dataset"
ZMQ = "zmq"
FOLDER = "folder"
DALI = "dali"
DATA_SOURCES = (ON_DEVICE, ON_HOST, PYTHON_QUEUE, PIPELINE, ZMQ, FOLDER, DALI)

# the model's own optimizer
DEFAULT_OPTIMIZER = "default"
OPTIMIZERS = (DEFAULT_OPTIMIZER, "sgd", "momentum", "adamw")

PARAMETER_SERVER = "parameter_server"
HOROVOD = "horovod"

# what a matrix calls our own worker among the sources of figures
WORKER = "worker"
