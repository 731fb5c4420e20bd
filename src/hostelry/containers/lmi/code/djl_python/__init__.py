"""The names that `model.py` imports from `djl_python`, as LMI's authors know them.

Only the process of the author's code imports this package, under the name `djl_python`.
Source: LMI's guides of custom handlers and formatters.
"""

from hostelry.containers.lmi.code.djl_python.inputs import Input
from hostelry.containers.lmi.code.djl_python.outputs import Output
from hostelry.containers.lmi.code.djl_python.pair_list import PairList
from hostelry.containers.lmi.code.djl_python.session_manager import Session, SessionManager

__all__ = ["Input", "Output", "PairList", "Session", "SessionManager"]
