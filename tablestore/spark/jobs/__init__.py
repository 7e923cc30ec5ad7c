"""Spark jobs of ours: one runner for all of them.

runner      runs tasks as one Spark job and returns each one's result, or raises our error
reports     sends a task's outcome to the driver as soon as it ends, so that an error stops the others
errors      which exception of Spark holds an error of ours, and which one is a crash of Spark's own
local_disk  what a task keeps on its executor's disk
java_classes  the classes of our jar, if the session has it
python_processes  which of Spark's Python processes do it: those that all sessions share
"""
