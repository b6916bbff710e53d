"""The mouse belongs to the app or to the terminal; a person can change that at any time."""

from typing import Any

from textual.app import App


def set_mouse(app: App[Any], on: bool) -> None:
    """Take the mouse, or leave it to the terminal. Where there is no terminal nothing happens."""
    driver: Any = getattr(app, "_driver", None)
    if not hasattr(driver, "_enable_mouse_support"):
        return
    driver._mouse = True
    if on:
        driver._enable_mouse_support()
    else:
        driver._disable_mouse_support()
        driver._mouse = False
    driver.flush()
