"""Machine profile, cost, choice: which way a run is laid on ranks, from what it would take."""

from .cost import Machine
from .cuts import Shape
from .plan import Candidate, Forecast, Plan, plan
from .profile import Link, Profile, read_profile

__all__ = ["Candidate", "Forecast", "Link", "Machine", "Plan", "Profile", "Shape", "plan", "read_profile"]
