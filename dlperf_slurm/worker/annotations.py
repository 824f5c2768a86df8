"""Names for annotations that are not there at run time: NumPy's types, and Protocol on Python 3.7.

NumPy is imported inside functions only, and type checkers do not follow it.
"""

import sys
from typing import Any, Dict

if sys.version_info >= (3, 8):
    from typing import Protocol as Protocol
else:

    class Protocol:
        """Base of interfaces, which only a type checker reads."""


# a NumPy array; arrays by name, such as those of a batch
Array = Any
Arrays = Dict[str, Array]
# numpy.random.RandomState, whose streams are frozen (NEP 19)
RandomState = Any
