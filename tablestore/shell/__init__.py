"""SQL on the command line: ``tablestore sql`` without what it prints.

statements     splits a text into statements (pure)
selects        which statements polars runs as Spark would (pure)
conditions     which expressions, and their text for polars (pure)
refusals       what Spark is certain to refuse, before it starts (pure)
engines        the engines that can be chosen
session        statements one after the other, each by its engine
polars_engine  runs a plan with polars      spark_engine  runs a statement in Spark
results        what both return
listing        tables, views and columns    completion    what a word may become (pure)
"""
