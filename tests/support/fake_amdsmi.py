"""A fake amdsmi for tests, to be copied first on sys.path under the name amdsmi.py.

FAKE_AMD_SMI is a JSON list with an object per GPU: the answer of each query, by its name without
"amdsmi_get_". A list contains successive answers, the last of which is repeated; a query that is
not in the object is not supported.
"""

import json
import os


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    pass


class AmdSmiClkType:
    GFX = 0


class AmdSmiTemperatureType:
    HOTSPOT = 1


class AmdSmiTemperatureMetric:
    CURRENT = 0


_DEVICES = json.loads(os.environ.get("FAKE_AMD_SMI", "[]"))
_ASKED = {}


def amdsmi_init():
    if "FAKE_AMD_SMI" not in os.environ:
        raise AmdSmiLibraryException("driver not loaded")


def amdsmi_get_processor_handles():
    return list(range(len(_DEVICES)))


def __getattr__(name):
    if not name.startswith("amdsmi_get_"):
        raise AttributeError(name)
    query = name[len("amdsmi_get_") :]

    def answer(handle, *arguments):
        if query not in _DEVICES[handle]:
            raise AmdSmiLibraryException(query)
        value = _DEVICES[handle][query]
        if isinstance(value, list):
            asked = _ASKED.get((handle, query), 0)
            _ASKED[handle, query] = asked + 1
            value = value[min(asked, len(value) - 1)]
        return value

    return answer
