"""The one supervised training loop and the curve that it draws."""
