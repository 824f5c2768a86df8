"""A fake pynvml for tests, to be copied first on sys.path under the name pynvml.py.

FAKE_NVML is a JSON list with an object per GPU: the answer of each query, by its name without
"nvmlDeviceGet". A list contains successive answers, the last of which is repeated. null, or a query
that is not in the object, is not supported; "mismatch" is a query that needs a newer driver; "die"
ends the process.
"""

import json
import os

NVML_CLOCK_SM = 1
NVML_TEMPERATURE_GPU = 0
NVML_NVLINK_MAX_LINKS = 4


class NVMLError(Exception):
    pass


class NVMLLibraryMismatchError(Exception):
    """A function is missing in the driver's library; not an NVMLError, as in nvidia-ml-py."""


class NVMLError_NotSupported(NVMLError):
    pass


class Answer:
    """An answer with fields, such as utilization and memory."""

    def __init__(self, fields):
        self.__dict__.update(fields)


_DEVICES = json.loads(os.environ.get("FAKE_NVML", "[]"))
_ASKED = {}


def nvmlInit():
    if "FAKE_NVML" not in os.environ:
        raise NVMLError("driver not loaded")


def nvmlShutdown():
    pass


def nvmlDeviceGetCount():
    return len(_DEVICES)


def nvmlSystemGetDriverVersion():
    return "550.54.15"


def nvmlSystemGetCudaDriverVersion():
    return 12040


nvmlSystemGetCudaDriverVersion_v2 = nvmlSystemGetCudaDriverVersion


def nvmlDeviceGetHandleByIndex(index):
    if not 0 <= index < len(_DEVICES):
        raise NVMLError("invalid argument")
    return index


def nvmlDeviceGetHandleByUUID(uuid):
    for index, device in enumerate(_DEVICES):
        if device.get("UUID") == uuid:
            return index
    raise NVMLError("not found")


def nvmlEventSetCreate():
    return []


def nvmlDeviceRegisterEvents(handle, types, events):
    events.append(handle)


def nvmlEventSetWait_v2(events, milliseconds):
    """Return the next of a device's "Xids", of which null is none until the next call."""
    xids = _DEVICES[events[0]].get("Xids", [])
    xid = xids.pop(0) if xids else None
    if xid is None:
        raise NVMLError("timeout")
    return Answer({"eventData": xid})


def nvmlDeviceGetTopologyCommonAncestor(first, second):
    return 30


def __getattr__(name):
    if not name.startswith("nvmlDeviceGet"):
        raise AttributeError(name)
    query = name[len("nvmlDeviceGet") :]

    def answer(handle, *arguments):
        # values may be for some arguments alone, as "TotalEccErrors 1 0"
        name = " ".join(map(str, (query, *arguments)))
        name = name if name in _DEVICES[handle] else query
        value = _DEVICES[handle].get(name)
        if isinstance(value, list):
            asked = _ASKED.get((handle, name), 0)
            _ASKED[handle, name] = asked + 1
            value = value[min(asked, len(value) - 1)]
        if value == "mismatch":
            raise NVMLLibraryMismatchError(query)
        if value == "die":
            os._exit(3)
        if value is None:
            raise NVMLError_NotSupported(query)
        if isinstance(value, list):
            return [Answer(one) if isinstance(one, dict) else one for one in value]
        return Answer(value) if isinstance(value, dict) else value

    return answer
