"""The work of `bench fleet` by Celery: the same rows in the same database, the same broker.

Started as `celery_fleet.py TASKS CONSUMERS PICKED` with BENCH_POSTGRES and BENCH_AMQP; prints one line of JSON.
"""
import json
import os
import subprocess
import sys
import time
import uuid

import psycopg2
from celery import Celery
from kombu import Queue

QUEUE = os.environ.get("BENCH_QUEUE", "celery-bench")
PAYLOAD = json.dumps({"text": "A step. " * 60})
app = Celery("bench", broker=os.environ["BENCH_AMQP"])
app.conf.update(
    task_queues=[Queue(QUEUE, queue_arguments={"x-queue-type": "quorum"})],
    task_default_queue=QUEUE,
    task_default_exchange_type="topic",
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_detect_quorum_queues=True,
    broker_transport_options={"confirm_publish": True},
)
connection = None


def database():
    global connection
    if connection is None:
        connection = psycopg2.connect(os.environ["BENCH_POSTGRES"])
        connection.autocommit = True
    return connection.cursor()


@app.task(name="work")
def work(task):
    db = database()
    db.execute("SELECT state FROM bench_tasks WHERE id = %s", (task,))
    db.execute("BEGIN")
    db.execute(
        "UPDATE bench_tasks SET state = 'leased', picked_at = clock_timestamp() WHERE id = %s AND state = 'queued'",
        (task,),
    )
    if db.rowcount == 0:
        db.execute("ROLLBACK")
        return
    db.execute("INSERT INTO bench_sessions (task) VALUES (%s)", (task,))
    db.execute("COMMIT")
    db.execute("UPDATE bench_tasks SET beat_at = clock_timestamp() WHERE id = %s", (task,))
    db.execute("UPDATE bench_tasks SET phase = 'running' WHERE id = %s", (task,))
    for step in range(4):
        db.execute(
            "INSERT INTO bench_steps (task, seq, payload) VALUES (%s, %s, %s)", (task, step, PAYLOAD)
        )
    db.execute("UPDATE bench_sessions SET usage = 1 WHERE task = %s", (task,))
    db.execute("INSERT INTO bench_effects (task) VALUES (%s)", (task,))
    db.execute("UPDATE bench_effects SET done_at = now() WHERE task = %s", (task,))
    db.execute("BEGIN")
    db.execute("UPDATE bench_tasks SET state = 'done' WHERE id = %s", (task,))
    db.execute("UPDATE bench_sessions SET ended_at = now() WHERE task = %s", (task,))
    db.execute("COMMIT")


def enqueue(count):
    db = database()
    for _ in range(count):
        task = str(uuid.uuid4())
        db.execute("INSERT INTO bench_tasks (id) VALUES (%s)", (task,))
        work.delay(task)


def until_done(count):
    db = database()
    while True:
        db.execute("SELECT count(*) FROM bench_tasks WHERE state = 'done'")
        if db.fetchone()[0] >= count:
            return
        time.sleep(0.05)


def main():
    tasks, consumers, picked = (int(arg) for arg in sys.argv[1:4])
    db = database()
    db.execute(
        """CREATE TABLE bench_tasks (id uuid PRIMARY KEY, state text NOT NULL DEFAULT 'queued', phase text,
               made_at timestamptz NOT NULL DEFAULT clock_timestamp(), picked_at timestamptz, beat_at timestamptz);
           CREATE TABLE bench_sessions (task uuid PRIMARY KEY, usage int, ended_at timestamptz);
           CREATE TABLE bench_steps (task uuid, seq int, payload text, PRIMARY KEY (task, seq));
           CREATE TABLE bench_effects (task uuid PRIMARY KEY, done_at timestamptz)"""
    )
    began = time.time()
    enqueue(tasks)
    enqueued = time.time() - began
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "celery_fleet", "worker", "-c", str(consumers), "-Q", QUEUE,
         "--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        # The start of the worker is not counted.
        until_done(1)
        db.execute("SELECT count(*) FROM bench_tasks WHERE state = 'done'")
        first, began = db.fetchone()[0], time.time()
        until_done(tasks)
        drained = (tasks - first) / (time.time() - began)
        for n in range(picked):
            enqueue(1)
            time.sleep(0.02)
        until_done(tasks + picked)
        db.execute(
            "SELECT extract(epoch FROM picked_at - made_at) FROM bench_tasks ORDER BY made_at DESC LIMIT %s", (picked,)
        )
        waits = sorted(float(row[0]) for row in db.fetchall())
        print(json.dumps({
            "enqueued": tasks / enqueued, "ended": drained,
            "p50": waits[len(waits) // 2], "p99": waits[len(waits) * 99 // 100],
        }))
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    main()
