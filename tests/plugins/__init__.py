"""The pytest plugins of this suite."""
