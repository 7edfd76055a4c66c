"""The forms of a backward graph; ``partition/backward_forms.py`` says what each is, and makes them."""

from __future__ import annotations

from typing import Literal

Form = Literal["whole", "below", "between"]
