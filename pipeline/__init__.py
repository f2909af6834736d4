"""The stages of a build, their memory budget, the stage store and the executors."""
