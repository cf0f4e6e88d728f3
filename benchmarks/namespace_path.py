"""Makes ``foredraft.*`` importable straight from the checkout, where nothing is installed."""

import sys
from pathlib import Path
from types import ModuleType

namespace = ModuleType("foredraft")
namespace.__path__ = [str(Path(__file__).resolve().parent.parent)]
sys.modules.setdefault("foredraft", namespace)
