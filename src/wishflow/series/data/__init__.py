"""Frames to model units and back: stamps, grids, calendars, transforms, scales."""
