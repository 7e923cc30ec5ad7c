{{
    config(
        materialized='incremental',
        incremental_strategy='merge',
        unique_key=['day', 'status'],
        merge_exclude_columns=['first_seen'],
        on_schema_change='append_new_columns',
    )
}}
-- a table without a primary key: the merge finds its rows by the condition alone
select
    to_date(changed_at) as day,
    status,
    count(*) as orders,
    sum(amount) as total,
    min(changed_at) as first_seen
    {% if var('with_largest', false) %}, max(amount) as largest {% endif %}
from {{ ref('stg_orders') }}
{% if is_incremental() %}
where to_date(changed_at) >= (select max(day) from {{ this }})
{% endif %}
group by 1, 2
