{{
    config(
        materialized='incremental',
        incremental_strategy='merge',
        unique_key='order_id',
        tblproperties={'primary-key': 'order_id', 'bucket': '1'},
    )
}}
select order_id, customer_id, status, amount, changed_at
from {{ ref('stg_orders') }}
{% if is_incremental() %}
where changed_at > (select max(changed_at) from {{ this }})
{% endif %}
