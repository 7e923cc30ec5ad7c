{{
    config(
        materialized='incremental',
        incremental_strategy='insert_overwrite',
        partition_by=['day'],
    )
}}
select sum(amount) as total, to_date(changed_at) as day
from {{ ref('stg_orders') }}
{% if is_incremental() %}
where to_date(changed_at) >= (select max(day) from {{ this }})
{% endif %}
group by 2
