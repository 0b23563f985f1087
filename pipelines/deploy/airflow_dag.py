"""gyre every night, by Airflow 2.4 or later."""

import pendulum
from airflow import DAG

try:
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:  # before Airflow 3
    from airflow.operators.bash import BashOperator

with DAG(
    dag_id="gyre_nightly",
    schedule="30 2 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
) as dag:
    BashOperator(
        task_id="run",
        # Without the space at the end, Airflow reads the command as the name of a template file.
        bash_command="sh pipelines/deploy/nightly.sh ",
        cwd="/srv/gyre",
        # Airflow would retry failed checks, too. The script retries only exit code 75.
        retries=0,
    )
