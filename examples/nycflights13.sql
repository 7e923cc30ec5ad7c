-- From nothing to a stream on the flights that departed from New York in 2013. README.md says how to get the data.
-- Run it with: tablestore sql --file nycflights13.sql

-- Few partitions suit one machine; Spark shuffles into 200 otherwise.
SET spark.sql.shuffle.partitions = 4;

-- 1. Tables ---------------------------------------------------------------------------------------------------------
CREATE DATABASE IF NOT EXISTS lake.nyc;

CREATE TABLE lake.nyc.airlines (carrier STRING, name STRING, PRIMARY KEY (carrier) NOT ENFORCED);

CREATE TABLE lake.nyc.airports (
    faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING,
    PRIMARY KEY (faa) NOT ENFORCED
);

CREATE TABLE lake.nyc.planes (
    tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, speed INT,
    engine STRING,
    PRIMARY KEY (tailnum) NOT ENFORCED
);

-- Hours are local and one of them repeats when the clocks go back, so the key has the time.
CREATE TABLE lake.nyc.weather (
    origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE, wind_dir INT,
    wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP,
    PRIMARY KEY (origin, time_hour) NOT ENFORCED
) PARTITIONED BY (origin);

-- A flight number of a carrier is flown once a day from one airport. The column of the partitions is in the key.
CREATE TABLE lake.nyc.flights (
    year INT, month INT, day INT, carrier STRING, flight INT, origin STRING, dest STRING, tailnum STRING,
    sched_dep_time INT, dep_time INT, dep_delay INT, sched_arr_time INT, arr_time INT, arr_delay INT,
    air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP,
    PRIMARY KEY (year, month, day, carrier, flight, origin) NOT ENFORCED
) PARTITIONED BY (month) COMMENT 'every departure of the year' TBLPROPERTIES ('bucket' = '1');

-- 2. Loading: a temporary view reads a file, and BY NAME puts its columns where they belong ---------------------------
CREATE TEMPORARY VIEW airlines_csv USING csv OPTIONS (path 'data/airlines.csv', header true, inferSchema true);
CREATE TEMPORARY VIEW airports_csv USING csv
    OPTIONS (path 'data/airports.csv', header true, inferSchema true, nullValue 'NA');
CREATE TEMPORARY VIEW planes_csv USING csv
    OPTIONS (path 'data/planes.csv', header true, inferSchema true, nullValue 'NA');
CREATE TEMPORARY VIEW weather_csv USING csv
    OPTIONS (path 'data/weather.csv', header true, inferSchema true, nullValue 'NA');
CREATE TEMPORARY VIEW flights_csv USING csv
    OPTIONS (path 'data/flights.csv', header true, inferSchema true, nullValue 'NA');

INSERT INTO lake.nyc.airlines BY NAME SELECT * FROM airlines_csv;
INSERT INTO lake.nyc.airports BY NAME SELECT * FROM airports_csv;
INSERT INTO lake.nyc.planes BY NAME SELECT * FROM planes_csv;
INSERT INTO lake.nyc.weather BY NAME SELECT * FROM weather_csv;
INSERT INTO lake.nyc.flights BY NAME SELECT * FROM flights_csv;

SHOW PARTITIONS lake.nyc.weather;

-- 3. Queries ----------------------------------------------------------------------------------------------------------
SELECT a.name, count(*) AS flights, round(avg(f.dep_delay), 1) AS delay
FROM lake.nyc.flights f JOIN lake.nyc.airlines a ON a.carrier = f.carrier
GROUP BY a.name ORDER BY flights DESC, a.name LIMIT 5;

-- How does wind at the airport delay departures?
SELECT CASE WHEN w.wind_speed < 10 THEN 'calm' WHEN w.wind_speed < 20 THEN 'breeze' ELSE 'wind' END AS weather,
       count(*) AS flights, round(avg(f.dep_delay), 1) AS delay
FROM lake.nyc.flights f JOIN lake.nyc.weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
WHERE w.wind_speed IS NOT NULL
GROUP BY 1 ORDER BY delay;

CREATE VIEW lake.nyc.seats COMMENT 'what each destination was offered' AS
SELECT d.name, sum(p.seats) AS seats
FROM lake.nyc.flights f
JOIN lake.nyc.planes p ON p.tailnum = f.tailnum
JOIN lake.nyc.airports d ON d.faa = f.dest
GROUP BY d.name;
SELECT * FROM lake.nyc.seats ORDER BY seats DESC LIMIT 3;

-- 4. A stream into another table: it takes what is there, and ends. A second call will go on from its checkpoint ------
CREATE TABLE lake.nyc.departures (
    year INT, month INT, day INT, carrier STRING, flight INT, origin STRING, dest STRING, dep_delay INT,
    PRIMARY KEY (year, month, day, carrier, flight, origin) NOT ENFORCED
) TBLPROPERTIES ('bucket' = '2');

INSERT INTO lake.nyc.departures WITH ('checkpoint' = 'checkpoints/departures', 'trigger' = 'available-now')
SELECT year, month, day, carrier, flight, origin, dest, dep_delay, _kind FROM STREAM lake.nyc.flights;

SELECT count(*) AS departures, count(dep_delay) AS with_delay FROM lake.nyc.departures;

-- 5. Changes: each statement is one commit ----------------------------------------------------------------------------
CALL lake.sys.create_tag('nyc.flights', 'as-loaded');

UPDATE lake.nyc.flights SET dep_delay = 0 WHERE month = 1 AND day = 1 AND dep_delay < 0;

DELETE FROM lake.nyc.flights WHERE month = 2 AND dep_time IS NULL;

MERGE INTO lake.nyc.flights t
USING (SELECT * FROM flights_csv WHERE month = 12 AND day = 31 AND dep_time IS NULL) s
ON t.year = s.year AND t.month = s.month AND t.day = s.day AND t.carrier = s.carrier AND t.flight = s.flight
    AND t.origin = s.origin
WHEN MATCHED AND s.carrier = 'US' THEN DELETE
WHEN MATCHED THEN UPDATE SET dep_delay = 999;

-- 6. Older versions, and what changed since -----------------------------------------------------------------------------
SELECT (SELECT count(*) FROM lake.nyc.flights VERSION AS OF 'as-loaded') AS loaded,
       (SELECT count(*) FROM lake.nyc.flights) AS now;

SELECT _commit_version AS version, _change_type AS change, count(*) AS rows
FROM lake.nyc.flights CHANGES FROM VERSION 3
GROUP BY 1, 2 ORDER BY 1, 2;

DESCRIBE HISTORY lake.nyc.flights;

-- 7. The stream goes on: only what changed meanwhile is read and written ------------------------------------------------
INSERT INTO lake.nyc.departures WITH ('checkpoint' = 'checkpoints/departures', 'trigger' = 'available-now')
SELECT year, month, day, carrier, flight, origin, dest, dep_delay, _kind FROM STREAM lake.nyc.flights;

SELECT count(*) AS departures, count_if(dep_delay = 999) AS cancelled_at_new_year,
       count_if(month = 1 AND day = 1 AND dep_delay < 0) AS early_on_the_first_day
FROM lake.nyc.departures;

-- 8. Views that are kept up to date: a refresh reads what has changed in their tables, and writes what differs ------------
CREATE MATERIALIZED VIEW lake.nyc.flown AS
SELECT f.year, f.month, f.day, f.carrier, f.flight, f.origin, f.tailnum, f.dep_delay, p.model, p.seats
FROM lake.nyc.flights f LEFT JOIN lake.nyc.planes p ON p.tailnum = f.tailnum;

CREATE MATERIALIZED VIEW lake.nyc.landed AS
SELECT f.year, f.month, f.day, f.carrier, f.flight, f.origin, f.dest, f.arr_delay, d.name AS airport
FROM lake.nyc.flights f JOIN lake.nyc.airports d ON d.faa = f.dest;

-- Delays by airport and hour. The key says that no hour is null, so a refresh reads only the groups that changes affect.
CREATE MATERIALIZED VIEW lake.nyc.delays PRIMARY KEY (origin, hour) AS
SELECT origin, hour, avg(dep_delay) AS delay, count(*) AS flights FROM lake.nyc.flights GROUP BY origin, hour;

UPDATE lake.nyc.planes SET seats = seats + 1 WHERE tailnum = 'N711MQ';
UPDATE lake.nyc.airports SET name = 'Chicago O''Hare' WHERE faa = 'ORD';
DELETE FROM lake.nyc.flights WHERE month = 3 AND day = 1;

REFRESH MATERIALIZED VIEW lake.nyc.flown;
REFRESH MATERIALIZED VIEW lake.nyc.landed;
REFRESH MATERIALIZED VIEW lake.nyc.delays;

SELECT _change_type AS kind, count(*) AS landed
FROM lake.nyc.landed CHANGES FROM VERSION 2
GROUP BY 1 ORDER BY 1;

SELECT origin AS latest_from, hour, round(delay, 1) AS delay, flights
FROM lake.nyc.delays WHERE flights >= 100 ORDER BY delay DESC, origin LIMIT 3;

-- 9. Compaction merges what the changes have left in small files; the doctor finds nothing --------------------------------
CALL lake.sys.compact('nyc.flights', full => true);
CALL lake.sys.doctor('nyc.flights');
CALL lake.sys.doctor('nyc.departures');
CALL lake.sys.doctor('nyc.landed');
CALL lake.sys.doctor('nyc.delays');
